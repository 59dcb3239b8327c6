# Runs short sequences of file operations, as the host requests them line by line. Uses no modules.
#
#   perl -e SCRIPT DIRECTORY SYNCED FSYNC FALLOCATE OLD NEW ADDED
#
# A line is `VERSION SYNCED-AT-THE-END STEP…`; the answer is `done VERSION` once all has returned. SYNCED 0
# leaves out every fsync, as a control. FSYNC and FALLOCATE are numbers of system calls, OLD, NEW and ADDED lengths.
my ($root, $syncs, $FSYNC, $FALLOCATE, $OLD, $NEW, $ADDED) = @ARGV;
$_ += 0 for $FSYNC, $FALLOCATE, $OLD, $NEW, $ADDED;    # syscall takes a string for its address
my ($O_RDONLY, $O_WRONLY, $O_CREAT, $O_EXCL) = (0, 1, 0x40, 0x80);    # the same on every architecture
$| = 1;

sub sync_of {
    my ($path, $flags) = @_;
    return if !$syncs;
    sysopen(my $file, $path, $flags) or die "$path: $!\n";
    syscall($FSYNC, fileno($file)) == 0 or die "fsync of $path: $!\n";
}

sub create {
    my ($directory, $version, $name, $length) = @_;
    sysopen(my $file, "$directory/$name", $O_WRONLY | $O_CREAT | $O_EXCL, 0600) or die "$name: $!\n";
    my $content = substr("$version.$name." x $length, 0, $length);
    my $put = syswrite($file, $content);
    die "$name: $!\n" if !defined $put || $put != $length;
}

while (defined(my $line = <STDIN>)) {
    chomp $line;
    last if $line eq "quit";
    if ($line eq "ready") {
        print "ready\n";
        next;
    }
    my ($version, $at_end, @steps) = split / /, $line;
    my $directory = "$root/s$version";
    mkdir $directory or die "$directory: $!\n";
    create($directory, $version, "old", $OLD);
    sync_of("$directory/old", $O_WRONLY);
    sync_of($directory, $O_RDONLY);
    sync_of($root, $O_RDONLY);
    my ($current, $number) = ("old", 0);
    for my $step (@steps) {
        $number++;
        if ($step eq "create") {
            $current = "new$number";
            create($directory, $version, $current, $NEW);
        } elsif ($step eq "rename") {
            my $target = $current eq "old" ? "moved$number" : "old";
            rename("$directory/$current", "$directory/$target") or die "rename: $!\n";
            $current = $target;
        } elsif ($step eq "link") {
            link("$directory/$current", "$directory/link$number") or die "link: $!\n";
        } elsif ($step eq "fallocate") {
            sysopen(my $file, "$directory/$current", $O_WRONLY) or die "$current: $!\n";
            my $size = -s $file;
            syscall($FALLOCATE, fileno($file), 0, $size, $ADDED) == 0 or die "fallocate: $!\n";
        } else {
            die "unknown step $step\n";
        }
    }
    sync_of("$directory/$current", $O_WRONLY) if $at_end ne "directory";
    sync_of($directory, $O_RDONLY) if $at_end ne "file";
    print "done $version\n";
}
