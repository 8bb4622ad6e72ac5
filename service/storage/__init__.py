"""The database: tables, migrations, leases."""
