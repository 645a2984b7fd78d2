"""Runtimes that make another program of a module: TorchScript, torch.compile, AOTInductor, XLA."""
