"""SSH: the only door to asyncssh. `client` reaches nodes, `server` is what a local node runs."""
