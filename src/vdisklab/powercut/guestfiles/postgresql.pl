# Keeps psql running, and says what became of each statement. Uses no modules.
#
#   perl -e SCRIPT COMMAND…
#
# A line is `VERSION SQL`. The answer is `VERSION ok` once the SQL has run, or `VERSION failed REASON`: then
# psql has ended, and the next line starts it again, as a program connects again.
my @command = @ARGV;
my ($to, $from, $process);
$| = 1;
$SIG{PIPE} = "IGNORE";

sub begin {
    pipe(my $in, $to) or die "pipe: $!\n";
    pipe($from, my $out) or die "pipe: $!\n";
    $process = fork;
    die "fork: $!\n" if !defined $process;
    if (!$process) {
        close $_ for $to, $from;
        open(STDIN, "<&", $in) and open(STDOUT, ">&", $out) and open(STDERR, ">&", $out) and exec @command;
        die "$command[0]: $!\n";
    }
    close $_ for $in, $out;
    select((select($to), $| = 1)[0]);
}

sub done {
    my ($version, $sql) = @_;
    begin() if !$process;
    print {$to} "$sql SELECT 'end $version';\n";
    my @said;
    while (defined(my $line = <$from>)) {
        chomp $line;
        return "ok" if $line eq "end $version";
        push @said, $line;
    }
    close $_ for $to, $from;
    waitpid($process, 0);
    $process = 0;
    my @errors = grep { /ERROR|FATAL|PANIC|error/ } @said;
    select(undef, undef, undef, 0.1);    # a server that starts again needs the processor, too
    return "failed " . (@errors ? $errors[0] : "psql ended");
}

while (defined(my $line = <STDIN>)) {
    chomp $line;
    last if $line eq "quit";
    print "$1 ", done($1, $2), "\n" if $line =~ /^(\S+) (.*)$/;
}
close $to if $process;
