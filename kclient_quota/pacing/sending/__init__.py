"""What a producer sends, and when: the queue, its order, what leaves together, and what a batch costs."""
