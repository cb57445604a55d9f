"""Only a process that ends without a word shows what is here: a dozen, as proof of the deaths explored in memory."""
