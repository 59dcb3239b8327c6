"""The JSON documents that vdisklab prints, as dataclasses."""
