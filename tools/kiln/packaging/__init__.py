"""Images and records -> host objects, archives, C headers and the Rust crate."""
