# Sets a disk's write cache from within the guest, then prints the state that it reads as key=value.
#
#   perl -e SCRIPT DEVICE SETTING
#
# SETTING is as-found, queue (the block layer's queue/write_cache), cache-type (of virtio_blk or
# scsi_disk) or hdparm (SET FEATURES 82h to the drive, which is what `hdparm -W0` sends).
my ($device, $setting) = @ARGV;
my ($disk) = $device =~ m{([^/]+)$};
my ($HDIO_DRIVE_CMD, $HDIO_GET_IDENTITY) = (0x031f, 0x030d);
my ($SET_FEATURES, $NO_WRITE_CACHE, $WRITE_CACHE_ENABLED) = (0xef, 0x82, 1 << 5);

sub content {
    open(my $file, "<", $_[0]) or return undef;
    my $line = <$file>;
    return undef if !defined $line;
    chomp $line;
    return $line;
}

sub put {
    my ($path, $word) = @_;
    open(my $file, ">", $path) or die "$path: $!\n";
    syswrite($file, $word) or die "$path takes no `$word`: $!\n";
}

sub cache_type {
    my $virtio = "/sys/block/$disk/cache_type";
    return $virtio if -e $virtio;
    opendir(my $directory, "/sys/block/$disk/device/scsi_disk") or return undef;
    my ($name) = grep { !/^\./ } readdir $directory;
    return "/sys/block/$disk/device/scsi_disk/$name/cache_type";
}

my $type = cache_type();
sysopen(my $drive, $device, 0x800) or die "$device: $!\n";    # O_RDONLY | O_NONBLOCK
if ($setting eq "queue") {
    put("/sys/block/$disk/queue/write_cache", "write through");
} elsif ($setting eq "cache-type") {
    die "the driver of $disk has no cache_type\n" if !defined $type;
    put($type, "write through");
} elsif ($setting eq "hdparm") {
    my $command = pack("C4", $SET_FEATURES, 0, $NO_WRITE_CACHE, 0);
    ioctl($drive, $HDIO_DRIVE_CMD, $command) or die "SET FEATURES 82h to $disk: $!\n";
}
for my $name ("write_cache", "fua") {
    my $line = content("/sys/block/$disk/queue/$name");
    print "guest.queue.$name=$line\n" if defined $line;
}
print "guest.cache_type=", content($type), "\n" if defined $type && -r $type;
my $identity = "\0" x 512;
if (ioctl($drive, $HDIO_GET_IDENTITY, $identity)) {
    my $on = (unpack("v256", $identity))[85] & $WRITE_CACHE_ENABLED;
    print "guest.ata.write_cache=", $on ? "on" : "off", "\n";
}
