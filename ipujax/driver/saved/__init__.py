"""Programs in files: `executable.save` writes them, `ipu.load_executable` reads and runs them."""
