"""What a run will take, told and checked before it begins."""
