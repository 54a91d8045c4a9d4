"""Files of every kind that commands read, damaged and hostile: each is read or refused in a sentence, in bounded time
and memory."""
