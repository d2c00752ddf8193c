"""Replication: what is done to session files is durable on a majority of servers before an ack."""
