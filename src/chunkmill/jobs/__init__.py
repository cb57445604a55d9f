"""Jobs: plan, run, resume and list them."""
