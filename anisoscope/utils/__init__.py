"""What every folder needs: files, folders, settings, stopping, processes, errors."""
