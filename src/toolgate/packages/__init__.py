"""Packages: published bundles of a manifest and a server's files; how they are kept, checked, unpacked."""
