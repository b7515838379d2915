"""kernels.yaml -> Manifest -> variants -> images."""
