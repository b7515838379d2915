"""Kiln fires GPU kernels ahead of time: kernels.yaml in, a C/C++ package and a Rust crate out."""

__version__ = "0.1.0"
