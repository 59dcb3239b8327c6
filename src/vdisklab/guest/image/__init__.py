"""The micro guest's image: kernel, modules, programs and packages, built and cached."""
