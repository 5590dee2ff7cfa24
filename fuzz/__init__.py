"""Fuzz targets and their runner. Development only: nothing here is part of the package."""
