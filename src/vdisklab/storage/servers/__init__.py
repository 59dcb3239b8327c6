"""What differs between kinds of servers: a file of the kind's name, found by it.

`members` are those of QEMU's node for a URL, `promises` what the server says of its disk, and
`remove`, of a kind that holds files, removes one.
"""
