"""The micro guest's system: kernel, modules, programs and packages, built and cached."""
