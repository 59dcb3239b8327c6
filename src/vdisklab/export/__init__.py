"""A disk path as the configuration of the programs that run guests. Pure: text comes out."""
