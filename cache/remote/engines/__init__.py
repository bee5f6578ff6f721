"""Engines of tiers: the protocol, one file for each kind of tier, and engines that wrap another one."""
