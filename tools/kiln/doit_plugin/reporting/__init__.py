"""What a build shows: counted once, told to people or to programs; and how numbers and lists are worded."""
