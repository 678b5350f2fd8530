"""The pipeline of one request to a server: quota, approval, audit, send."""
