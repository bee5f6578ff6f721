"""From a capture to the ATen graphs of its gears."""
