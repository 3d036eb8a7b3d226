"""Requests and answers with very many things in them: a part at a time, so that others have their turn."""
