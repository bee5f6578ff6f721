"""Probes: replaced functions of Dynamo that report what a trace reads, or refuse what no check can compare."""
