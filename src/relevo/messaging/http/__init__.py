"""Operations on queues, topics, subscriptions, their messages, sessions and consumers."""
