"""The endpoints of the control plane: one module a resource, its handlers and its wire shapes together"""
