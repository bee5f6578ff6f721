"""Capture of a method: one Dynamo run, as frame, graph, inputs and checks."""
