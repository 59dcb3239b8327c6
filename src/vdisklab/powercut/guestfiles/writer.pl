# Writes to a disk, and reads it, as the host requests over a virtio-serial port. Uses no modules, so the package
# perl-base is enough.
#
#   perl -e SCRIPT PORT DEVICE WORKERS FDATASYNC O_DIRECT
#
# PORT is the name of a port, or the path of a character device. FDATASYNC is the number of the system call,
# O_DIRECT that of the flag.
# The host sends 24 bytes (number, kind, count of sectors, unused, first sector; little-endian), and
# for a write a record of 32 bytes for each sector, which fills it. Request k goes to process k mod
# WORKERS, so several are in flight. The answer is the number and errno, sent when the system call
# has returned; that of a read is followed by the sectors, so only one may be in flight. Number 0 is
# the greeting; kind 0 ends the program.
#
# A write with FUA is O_DSYNC, which Linux turns into a write and a flush. If the kernel says that the
# disk supports FUA (NVMe), it is one command with that bit and no flush, as a file system's journal
# sends it; O_DSYNC on a block device would add a flush (blkdev_write_iter).
my ($name, $device, $workers, $FDATASYNC, $O_DIRECT) = @ARGV;
my ($QUIT, $WRITE, $WRITE_FUA, $FLUSH, $READ) = (0, 1, 2, 3, 4);
my ($O_WRONLY, $O_RDWR, $O_DSYNC) = (1, 2, 0x1000);    # the same on every architecture
my ($NVME_IOCTL_SUBMIT_IO, $NVME_CMD_WRITE, $NVME_RW_FUA) = (0x40304e42, 1, 1 << 14);
my ($HEAD, $RECORD, $LARGEST, $ALIGNED) = (24, 32, 1 << 16, 4096);

sub port_device {
    return $name if $name =~ m{^/};
    for (1 .. 400) {
        if (opendir(my $ports, "/sys/class/virtio-ports")) {
            for my $port (readdir $ports) {
                open(my $file, "<", "/sys/class/virtio-ports/$port/name") or next;
                my $line = <$file>;
                return "/dev/$port" if defined $line && $line =~ /^\Q$name\E$/;
            }
        }
        select(undef, undef, undef, 0.01);
    }
    die "the guest has no port $name\n";
}

sub read_all {
    my ($from, $length) = @_;
    my $data = "";
    while (length $data < $length) {
        my $got = sysread($from, $data, $length - length $data, length $data);
        return undef if !$got;
    }
    return $data;
}

sub write_all {
    my ($to, $data) = @_;
    my $done = 0;
    while ($done < length $data) {
        my $put = syswrite($to, $data, length($data) - $done, $done);
        die "cannot write: $!\n" if !defined $put;
        $done += $put;
    }
}

sub supports_fua {
    my ($disk) = $device =~ m{/(nvme[^/]+)$};
    return 0 if !defined $disk;
    open(my $file, "<", "/sys/block/$disk/queue/fua") or return 0;
    return <$file> == 1;
}

# One NVMe write (struct nvme_user_io of linux/nvme_ioctl.h) that must be on the medium; its errno.
sub write_fua {
    my ($disk, $address, $first, $count) = @_;
    my $io = pack("CCSSSQQQLLSSx4", $NVME_CMD_WRITE, 0, $NVME_RW_FUA, $count - 1, 0, 0, $address,
        $first, 0, 0, 0, 0);
    my $status = ioctl($disk, $NVME_IOCTL_SUBMIT_IO, $io);
    return !defined $status ? $! + 0 : $status == 0 ? 0 : 5;
}

# The offset in a buffer of LARGEST + ALIGNED bytes from which its memory is aligned, as O_DIRECT needs.
sub aligned {
    substr($_[0], 0, 1) = "\0";    # forces a private copy, whose address stays
    return -unpack("J", pack("p", $_[0])) & ($ALIGNED - 1);
}

sub work {
    my ($requests, $port) = @_;
    sysopen(my $plain, $device, $O_RDWR | $O_DIRECT) or die "$device: $!\n";
    sysopen(my $dsync, $device, $O_WRONLY | $O_DIRECT | $O_DSYNC) or die "$device: $!\n";
    my ($room, $into) = ("\0" x ($LARGEST + $ALIGNED), "\0" x ($LARGEST + $ALIGNED));
    my ($begin, $into_begin) = (aligned($room), aligned($into));
    my $address = unpack("J", pack("p", $room)) + $begin;
    my $one_command = supports_fua();
    while (defined(my $head = read_all($requests, $HEAD))) {
        my ($number, $kind, $count, undef, $first) = unpack("VVVVQ<", $head);
        my ($errno, $data) = (0, "");
        if ($kind == $FLUSH) {
            $errno = $! + 0 if syscall($FDATASYNC, fileno($plain)) != 0;
        } elsif ($kind == $READ) {
            sysseek($plain, $first * 512, 0);
            my $got = sysread($plain, $into, $count * 512, $into_begin);
            $errno = !defined $got ? $! + 0 : $got == $count * 512 ? 0 : 5;
            $data = substr($into, $into_begin, $got) if !$errno;
        } else {
            my $records = read_all($requests, $count * $RECORD);
            my $length = $count * 512;
            substr($room, $begin, $length) = join "", map { $_ x 16 } unpack("(a$RECORD)*", $records);
            if ($kind == $WRITE_FUA && $one_command) {
                $errno = write_fua($plain, $address, $first, $count);
            } else {
                my $to = $kind == $WRITE_FUA ? $dsync : $plain;
                sysseek($to, $first * 512, 0);
                my $put = syswrite($to, $room, $length, $begin);
                $errno = !defined $put ? $! + 0 : $put == $length ? 0 : 5;
            }
        }
        write_all($port, pack("VV", $number, $errno) . $data);
    }
    exit 0;
}

sysopen(my $port, port_device(), $O_RDWR) or die "the port $name: $!\n";
my @pipes;
for (1 .. $workers) {
    pipe(my $read, my $write) or die "pipe: $!\n";
    my $pid = fork;
    die "fork: $!\n" if !defined $pid;
    if (!$pid) {
        close $_ for @pipes, $write;
        work($read, $port);
    }
    close $read;
    push @pipes, $write;
}
write_all($port, pack("VV", 0, 0));
while (defined(my $head = read_all($port, $HEAD))) {
    my ($number, $kind, $count) = unpack("VVV", $head);
    last if $kind == $QUIT;
    my $records = $kind == $FLUSH || $kind == $READ ? "" : read_all($port, $count * $RECORD);
    last if !defined $records;
    write_all($pipes[$number % $workers], $head . $records);
}
close $_ for @pipes;
while (wait() > 0) { die "a process of the client failed\n" if $? }
