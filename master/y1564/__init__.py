"""Service activation like ITU-T Y.1564's: is each service what was agreed, alone and beside the others?"""
