# Writes files and syncs each, as the host requests line by line, and says which call failed. Uses no modules.
#
#   perl -e SCRIPT DIRECTORY BYTES FSYNC
#
# A line is a version. The file f VERSION is made, filled with BYTES bytes that name the version, and synced; then
# its directory is synced. The answer is `VERSION CALL ERRNO AGAIN`: the call that failed (`-` if none did),
# its errno, and the errno of a second fsync of the same file if the first one failed (else -1). FSYNC is
# the number of the system call.
my ($root, $BYTES, $FSYNC) = @ARGV;
$_ += 0 for $BYTES, $FSYNC;    # syscall takes a string for its address
my ($O_RDONLY, $O_WRONLY, $O_CREAT, $O_EXCL) = (0, 1, 0x40, 0x80);    # the same on every architecture
$| = 1;

sub errno_of_fsync {
    my ($file) = @_;
    return syscall($FSYNC, fileno($file)) == 0 ? 0 : $! + 0;
}

sub synced {
    my ($version) = @_;
    sysopen(my $file, "$root/f$version", $O_WRONLY | $O_CREAT | $O_EXCL, 0600) or return ("open", $! + 0, -1);
    my $content = substr("$version." x $BYTES, 0, $BYTES);
    my $put = syswrite($file, $content);
    return ("write", $! + 0, -1) if !defined $put;
    return ("write", 28, -1) if $put != $BYTES;
    my $errno = errno_of_fsync($file);
    return ("fsync", $errno, errno_of_fsync($file)) if $errno;
    sysopen(my $directory, $root, $O_RDONLY) or return ("open", $! + 0, -1);
    $errno = errno_of_fsync($directory);
    return ("fsync", $errno, -1) if $errno;
    return ("-", 0, -1);
}

while (defined(my $line = <STDIN>)) {
    chomp $line;
    last if $line eq "quit";
    print join(" ", $line, $line eq "ready" ? ("-", 0, -1) : synced($line)), "\n";
}
