"""CompileRequest -> image bytes and compiler metadata, in an isolated child."""
