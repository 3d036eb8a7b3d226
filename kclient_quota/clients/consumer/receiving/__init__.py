"""How messages come from librdkafka to the application: fetched, held, handed out."""
