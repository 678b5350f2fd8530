"""The frozen values everything speaks in. They hold no behaviour beyond their own invariants."""
