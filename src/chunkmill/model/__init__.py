"""What an array is: values, numpy and the standard library only."""
