"""The `inductor` backend: compiles gears with AOTInductor."""
