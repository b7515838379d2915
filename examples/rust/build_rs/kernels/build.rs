fn main() -> Result<(), kiln_build::Error> {
    // With `.targets(["sm_90a"])` in between, the library is built for that target alone.
    kiln_build::Library::new("../../../../kernels.yaml").build()?;
    Ok(())
}
