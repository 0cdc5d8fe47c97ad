"""Queueing theory: formulas that the simulator has to meet, and the cases that compare them.

The formulas are in `single_server`, `batch_service`, `continuous`, `several_servers` and `closed`;
`compare` has the table of cases, which `batchlab theory` and the tests go through.
"""
