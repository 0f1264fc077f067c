"""Other open ways to the optimum that libra finds, side by side with it."""
