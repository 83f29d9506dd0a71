"""What we change about django-q2: a broker and queues that survive their environment, a stop that shifts can see, named groups."""
