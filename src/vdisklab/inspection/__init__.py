"""What an answer asks a host: its features, its guests, their images. Changes nothing."""
