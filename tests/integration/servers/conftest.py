"""Only a server shows what is here: which requests reach it, what it answers when busy, and what two clients make of it."""
