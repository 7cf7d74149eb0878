"""How fast is the agent? `make bench` measures it in a guest and holds it to what is promised."""
