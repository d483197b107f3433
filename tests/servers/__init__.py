"""Real servers for the tests: moto, Ceph radosgw, and a proxy that breaks things between."""
