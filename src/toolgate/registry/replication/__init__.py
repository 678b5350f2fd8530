"""How a node follows the control plane: connection, sync, state, and what it requests remotely"""
